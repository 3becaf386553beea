// What the fuzz tests do to good input: changes of the text, and changes of what it says with all digests made anew.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "cc/artifact/manifest.h"

namespace coldsnap {

// One of `texts` with a few changes: single ones, words of the format in odd places, the end of another text.
std::string DamagedText(const std::vector<std::string>& texts, std::mt19937& random);

// The text of `manifest` after a few of its fields have got other values. Mostly places, header and digests are then
// made to fit, as far as they can be, so that the reader has to find the lie itself.
std::string DamagedManifest(Manifest manifest, std::mt19937& random);

}  // namespace coldsnap
