//! The few DER structures that keys are wrapped in.

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;

/// `id-ecPublicKey` and `prime256v1`.
const ALGORITHM_P256: [u8; 21] = [
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07,
];
/// `id-ecPublicKey` and `secp384r1`.
const ALGORITHM_P384: [u8; 18] = [
    0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00,
    0x22,
];
/// `rsaEncryption` and null.
const ALGORITHM_RSA: [u8; 15] = [
    0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];

/// Curves that `ring` signs and verifies with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Curve {
    P256,
    P384,
}

impl Curve {
    pub(super) const ALL: [Self; 2] = [Self::P256, Self::P384];

    /// The curve whose uncompressed points have so many bytes.
    pub(super) fn of_point(point: &[u8]) -> Option<Self> {
        match point.len() {
            65 => Some(Self::P256),
            97 => Some(Self::P384),
            _ => None,
        }
    }

    fn algorithm(self) -> &'static [u8] {
        match self {
            Self::P256 => &ALGORITHM_P256,
            Self::P384 => &ALGORITHM_P384,
        }
    }
}

/// `SubjectPublicKeyInfo` of an uncompressed point.
pub(super) fn ec_public_key(curve: Curve, point: &[u8]) -> Vec<u8> {
    element(
        SEQUENCE,
        &[curve.algorithm(), &element(BIT_STRING, &[&[0], point])],
    )
}

/// `SubjectPublicKeyInfo` of an `RSAPublicKey`.
pub(super) fn rsa_public_key(key: &[u8]) -> Vec<u8> {
    element(SEQUENCE, &[&ALGORITHM_RSA, &element(BIT_STRING, &[&[0], key])])
}

/// PKCS #8 of an `ECPrivateKey` (SEC 1), which is all that `ring` reads.
pub(super) fn ec_private_key(curve: Curve, key: &[u8]) -> Vec<u8> {
    let version = element(INTEGER, &[&[0]]);
    let key = element(OCTET_STRING, &[key]);
    element(SEQUENCE, &[&version, curve.algorithm(), &key])
}

fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(content + 6);
    out.push(tag);
    push_length(&mut out, content);
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

fn push_length(out: &mut Vec<u8>, length: usize) {
    if let Some(short) = u8::try_from(length).ok().filter(|short| *short < 0x80) {
        out.push(short);
        return;
    }
    let bytes = length.to_be_bytes();
    let from = bytes.iter().position(|byte| *byte != 0).unwrap_or_default();
    let significant = &bytes[from..];
    out.push(0x80 | u8::try_from(significant.len()).unwrap_or_default());
    out.extend_from_slice(significant);
}
