"""What a training job is, free of servers and screens: its objects as models, and what follows from them."""
