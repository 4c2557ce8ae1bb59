"""What looks at an installation or tries objects, and changes nothing."""
