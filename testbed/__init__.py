"""The testbed: an emulated link, trace replay, workload, measurement and report around cachegen."""
