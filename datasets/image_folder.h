#pragma once
#include "datasets/encoded_images.h"

namespace ssn {

/// The images of directory/train/CLASS/ and of directory/val/CLASS/, or test/ where there is no val/: files
/// that end in .jpg, .jpeg or .png, capital or not, in the order of their names' bytes; other files and names
/// with a dot first are left alone. A class that only the test images have is an Error, and so is one without
/// training images. Only names are read.
EncodedSets open_image_folder(const std::string& directory);

}  // namespace ssn
