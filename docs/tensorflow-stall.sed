# SPDX-License-Identifier: Apache-2.0
# Ends the stall of docs/tensorflow-stall.md in TensorFlow's own source: the thread that tunes a data set asks whether
# its cancellation has begun, not only whether it is over. In a checkout of TensorFlow:
#
#   sed -E -i -f tensorflow-stall.sed tensorflow/core/framework/model.cc && git diff
#
/Model::OptimizeLoop\(/,/^\}/ {
    # In this order: what is no longer under way at the second question is over at the third.
    /while \(!cancellation_manager->IsCancelled\(\) &&/ a\
             !cancellation_manager->IsCancelling() &&\
             !cancellation_manager->IsCancelled() &&
    /if \(cancellation_manager->IsCancelled\(\)\)/ i\
      if (cancellation_manager->IsCancelling()) {\
        return absl::OkStatus();\
      }
}
