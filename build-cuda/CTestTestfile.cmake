# CMake generated Testfile for 
# Source directory: /work/wt3/elem
# Build directory: /work/wt3/elem/build-cuda
# 
# This file includes the relevant testing commands required for 
# testing this directory and lists subdirectories to be tested as well.
subdirs("client")
subdirs("tests")
