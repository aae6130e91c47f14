"""scikit-learn estimators whose `fit` is differentially private. They need the extra `learn`."""
