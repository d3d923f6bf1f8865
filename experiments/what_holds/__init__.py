"""The report "What holds of personalised federated learning on collaboration graphs", as a PDF."""
