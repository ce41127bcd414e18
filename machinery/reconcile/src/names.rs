//! Names that a controller picks itself.
//!
//! Upstream's controllers send `generateName` and let the server pick. Ours pick the suffix, from the same alphabet and
//! of the same length, and send both: a create whose answer was lost can be sent again under the same name, and is
//! then made once. `generateName` is kept on the object, so it looks the same.

use machinery_runtime::Runtime;

/// No vowels and nothing that looks like them, so that no words come out.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;
/// Bytes of a prefix that a generated name has: it is cut before the suffix, to fit a label value.
pub const MAX_BASE_LENGTH: usize = 63 - SUFFIX_LENGTH;

/// `prefix` with a random suffix.
pub fn generate(runtime: &Runtime, prefix: &str) -> String {
    let mut name = prefix[..prefix.floor_char_boundary(MAX_BASE_LENGTH)].to_owned();
    let mut random = runtime.random_u64();
    for _ in 0..SUFFIX_LENGTH {
        let at = usize::try_from(random % 27).unwrap_or(0);
        name.push(char::from(ALPHABET[at]));
        random /= 27;
    }
    name
}

/// A number in the alphabet of generated names, as upstream's `SafeEncodeString` writes decimal digits.
pub fn safe_encode(text: &str) -> String {
    text.bytes()
        .map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]))
        .collect()
}
