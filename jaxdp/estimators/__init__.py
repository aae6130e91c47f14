"""scikit-learn estimators whose `fit` is differentially private. They need the extra `learn`."""

from jaxdp.estimators.naive_bayes import DPNaiveBayes as DPNaiveBayes
from jaxdp.estimators.pca import DPPCA as DPPCA
