"""What passive parties could learn about labels, measured on what they were sent."""
