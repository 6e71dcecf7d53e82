#----------------------------------------------------------------
# Generated CMake target import file for configuration "Release".
#----------------------------------------------------------------

# Commands may need to know the format version.
set(CMAKE_IMPORT_FILE_VERSION 1)

# Import target "gradwire::gradwire" for configuration "Release"
set_property(TARGET gradwire::gradwire APPEND PROPERTY IMPORTED_CONFIGURATIONS RELEASE)
set_target_properties(gradwire::gradwire PROPERTIES
  IMPORTED_LOCATION_RELEASE "${_IMPORT_PREFIX}/lib/libgradwire.so.0.1.0"
  IMPORTED_SONAME_RELEASE "libgradwire.so.0"
  )

list(APPEND _cmake_import_check_targets gradwire::gradwire )
list(APPEND _cmake_import_check_files_for_gradwire::gradwire "${_IMPORT_PREFIX}/lib/libgradwire.so.0.1.0" )

# Commands beyond this point should not need to know the version.
set(CMAKE_IMPORT_FILE_VERSION)
