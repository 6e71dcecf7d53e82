include(${CMAKE_CURRENT_LIST_DIR}/gradwire-targets.cmake)
