"""Files of jobs: what they wrote, and the code that they ran. Read only, and only by paths from our own lists."""
