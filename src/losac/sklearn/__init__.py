"""scikit-learn estimators: ``fit(X, y, groups=clients)``, ``predict``, pipelines and grid searches."""

from losac.sklearn.classifier import FederatedClassifier
from losac.sklearn.regressor import FederatedRegressor

__all__ = ["FederatedClassifier", "FederatedRegressor"]
