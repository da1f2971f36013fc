"""The same run with every party in a process of its own, in another organisation if need be."""
