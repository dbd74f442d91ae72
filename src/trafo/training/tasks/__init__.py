"""What is learned, from which data: language modelling and translation, for one trainer."""
