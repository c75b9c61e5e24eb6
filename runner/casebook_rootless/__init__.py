"""Engines that run images without a daemon and without root, Charliecloud and Apptainer: a plug-in of gpu_casebook."""
