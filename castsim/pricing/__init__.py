"""What a round costs and how wide a tree pays: probe files, costs, width rules, and the answer of `castsim width`."""
