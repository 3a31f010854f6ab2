"""A fair comparison of methods: equal budgets of learning rates, chosen on held-out data, then several seeds."""
