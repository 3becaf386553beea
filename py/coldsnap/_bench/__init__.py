"""What calibration is made of: machine, cache, ceilings, cases, report. Users call `coldsnap.calibrate`."""
