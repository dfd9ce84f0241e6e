"""The use cases: what operators, guests and hosts may ask for, each as one transaction."""
