# SPDX-License-Identifier: Apache-2.0
"""scikit-learn's checks of estimators, on those of XGBoost and LightGBM."""
import lightgbm
import xgboost
from sklearn.utils.estimator_checks import parametrize_with_checks


@parametrize_with_checks([xgboost.XGBClassifier(n_estimators=5), xgboost.XGBRegressor(n_estimators=5),
                          lightgbm.LGBMClassifier(n_estimators=5, verbosity=-1),
                          lightgbm.LGBMRegressor(n_estimators=5, verbosity=-1)])
def test_estimator(estimator, check):
    check(estimator)
