"""A TrainJob while it runs, for somebody who looks: a pure model, two ways to show it, and what follows the server."""
