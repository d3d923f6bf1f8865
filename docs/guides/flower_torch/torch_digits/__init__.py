"""FedPer on handwritten digits, with clients in PyTorch."""
