//! Public keys and signatures of certificates, as far as `ring` verifies them.
//!
//! Not among them, and taken by Go: RSA keys below 2,048 bits, the curves P-224 and P-521, SHA-512 with a curve. Go does not take
//! MD5 and SHA-1 either.

use crate::der::{Malformed, OBJECT_IDENTIFIER, Reader, SEQUENCE, constructed};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, UnparsedPublicKey,
    VerificationAlgorithm,
};

/// 1.2.840.113549.1.1, and a number.
const PKCS1: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
/// 1.2.840.10045.4.3, and a number.
const ECDSA_WITH_SHA2: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const ED25519_ID: &[u8] = &[0x2b, 0x65, 0x70];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const P384: &[u8] = &[0x2b, 0x81, 4, 0, 0x22];
const P224: &[u8] = &[0x2b, 0x81, 4, 0, 0x21];
const P521: &[u8] = &[0x2b, 0x81, 4, 0, 0x23];
/// 2.16.840.1.101.3.4.2, and a number.
const SHA2: &[u8] = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2];
const NULL: &[u8] = &[5, 0];

/// A key as its algorithm takes it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PublicKey<'a> {
    Rsa(&'a [u8]),
    P256(&'a [u8]),
    P384(&'a [u8]),
    Ed25519(&'a [u8]),
    /// One that verifies nothing here.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignatureAlgorithm {
    RsaPkcs1(Hash),
    RsaPss(Hash),
    Ecdsa(Hash),
    Ed25519,
    /// Unknown, or too weak to count.
    Other,
}

const WHAT: &str = "a public key";

/// The content of the `AlgorithmIdentifier` of a `SubjectPublicKeyInfo`, and the key.
pub(crate) fn parts<'a>(mut info: Reader<'a>) -> Result<(&'a [u8], &'a [u8]), Malformed> {
    let algorithm = info.expect(SEQUENCE, WHAT)?;
    Ok((algorithm.content, info.bytes_of_bits(WHAT)?))
}

impl<'a> PublicKey<'a> {
    /// Reads the content of a `SubjectPublicKeyInfo`.
    pub(crate) fn read(info: Reader<'a>) -> Result<Self, Malformed> {
        let (algorithm, key) = parts(info)?;
        let mut algorithm = Reader::new(algorithm);
        let kind = algorithm.identifier(WHAT)?;
        let parameters = algorithm.element();
        if kind == EC_PUBLIC_KEY {
            let curve = parameters.filter(|own| own.tag == OBJECT_IDENTIFIER);
            return of_curve(curve.ok_or(Malformed(WHAT))?.content, key);
        }
        match (kind, parameters) {
            (ED25519_ID, None) if key.len() == 32 => Ok(Self::Ed25519(key)),
            (ED25519_ID, _) => Err(Malformed(WHAT)),
            _ if is_numbered(kind, 1) => match parameters.map(|own| own.whole) {
                Some(NULL) => of_rsa(key),
                _ => Err(Malformed(WHAT)),
            },
            _ => Ok(Self::Other),
        }
    }

    pub(crate) fn is_usable(&self) -> bool {
        !matches!(self, Self::Other)
    }
}

/// An uncompressed point. Go reads no certificate whose curve it does not know.
fn of_curve<'a>(curve: &[u8], key: &'a [u8]) -> Result<PublicKey<'a>, Malformed> {
    let (own, bytes) = match curve {
        P224 => (PublicKey::Other, 28),
        P256 => (PublicKey::P256(key), 32),
        P384 => (PublicKey::P384(key), 48),
        P521 => (PublicKey::Other, 66),
        _ => return Err(Malformed("an unsupported elliptic curve")),
    };
    let is_point = key.first() == Some(&4) && key.len() == 1 + 2 * bytes;
    is_point.then_some(own).ok_or(Malformed(WHAT))
}

/// Modulus and exponent, both positive.
fn of_rsa(key: &[u8]) -> Result<PublicKey<'_>, Malformed> {
    let mut own = Reader::new(key).inner(SEQUENCE, WHAT)?;
    let (modulus, exponent) = (own.integer(WHAT)?, own.integer(WHAT)?);
    let is_positive = |own: &[u8]| own[0] < 0x80 && own != [0];
    let is_right = is_positive(modulus) && is_positive(exponent) && exponent.len() <= 8;
    is_right.then_some(PublicKey::Rsa(key)).ok_or(Malformed(WHAT))
}

impl SignatureAlgorithm {
    /// Reads the content of an `AlgorithmIdentifier`. Go minds the parameters of PSS and Ed25519 alone.
    pub(crate) fn read(mut own: Reader<'_>) -> Result<Self, Malformed> {
        let kind = own.identifier("a signature algorithm")?;
        Ok(
            match (kind.strip_prefix(PKCS1), kind.strip_prefix(ECDSA_WITH_SHA2)) {
                (Some([10]), _) => pss(own).map_or(Self::Other, Self::RsaPss),
                (Some([11]), _) => Self::RsaPkcs1(Hash::Sha256),
                (Some([12]), _) => Self::RsaPkcs1(Hash::Sha384),
                (Some([13]), _) => Self::RsaPkcs1(Hash::Sha512),
                (_, Some([2])) => Self::Ecdsa(Hash::Sha256),
                (_, Some([3])) => Self::Ecdsa(Hash::Sha384),
                (_, Some([4])) => Self::Ecdsa(Hash::Sha512),
                _ if kind == ED25519_ID && own.is_empty() => Self::Ed25519,
                _ => Self::Other,
            },
        )
    }

    pub(crate) fn verify(self, key: &PublicKey<'_>, message: &[u8], signature: &[u8]) -> bool {
        let (algorithm, key): (&'static dyn VerificationAlgorithm, _) = match (self, *key) {
            (Self::RsaPkcs1(Hash::Sha256), PublicKey::Rsa(key)) => (&RSA_PKCS1_2048_8192_SHA256, key),
            (Self::RsaPkcs1(Hash::Sha384), PublicKey::Rsa(key)) => (&RSA_PKCS1_2048_8192_SHA384, key),
            (Self::RsaPkcs1(Hash::Sha512), PublicKey::Rsa(key)) => (&RSA_PKCS1_2048_8192_SHA512, key),
            (Self::RsaPss(Hash::Sha256), PublicKey::Rsa(key)) => (&RSA_PSS_2048_8192_SHA256, key),
            (Self::RsaPss(Hash::Sha384), PublicKey::Rsa(key)) => (&RSA_PSS_2048_8192_SHA384, key),
            (Self::RsaPss(Hash::Sha512), PublicKey::Rsa(key)) => (&RSA_PSS_2048_8192_SHA512, key),
            (Self::Ecdsa(Hash::Sha256), PublicKey::P256(key)) => (&ECDSA_P256_SHA256_ASN1, key),
            (Self::Ecdsa(Hash::Sha384), PublicKey::P256(key)) => (&ECDSA_P256_SHA384_ASN1, key),
            (Self::Ecdsa(Hash::Sha256), PublicKey::P384(key)) => (&ECDSA_P384_SHA256_ASN1, key),
            (Self::Ecdsa(Hash::Sha384), PublicKey::P384(key)) => (&ECDSA_P384_SHA384_ASN1, key),
            (Self::Ed25519, PublicKey::Ed25519(key)) => (&ED25519, key),
            _ => return false,
        };
        UnparsedPublicKey::new(algorithm, key)
            .verify(message, signature)
            .is_ok()
    }
}

/// Reports whether an identifier is the one of PKCS #1 with this number.
fn is_numbered(id: &[u8], number: u8) -> bool {
    id.strip_prefix(PKCS1).is_some_and(|own| own == [number])
}

/// The hash of PSS, where it is that of the mask too and the salt is as long as it (`getSignatureAlgorithmFromAI`).
fn pss(mut own: Reader<'_>) -> Option<Hash> {
    const WHAT: &str = "parameters of PSS";
    let mut parameters = own.inner(SEQUENCE, WHAT).ok()?;
    let mut hash = parameters.inner(constructed(0), WHAT).ok()?;
    let (hash, salt) = sha2(hash.inner(SEQUENCE, WHAT).ok()?)?;
    let mut mask = parameters.inner(constructed(1), WHAT).ok()?;
    let mut mask = mask.inner(SEQUENCE, WHAT).ok()?;
    let is_mgf1 = is_numbered(mask.identifier(WHAT).ok()?, 8);
    let (of_mask, _) = sha2(mask.inner(SEQUENCE, WHAT).ok()?)?;
    let mut length = parameters.inner(constructed(2), WHAT).ok()?;
    let is_as_long = length.small_integer(WHAT) == Ok(salt);
    let trailer = parameters.optional(constructed(3), WHAT).ok()?;
    let is_usual = trailer.is_none_or(|mut own| own.small_integer(WHAT) == Ok(1));
    (is_mgf1 && of_mask == hash && is_as_long && is_usual).then_some(hash)
}

/// A hash, and its length in bytes.
fn sha2(mut own: Reader<'_>) -> Option<(Hash, u64)> {
    let number = own.identifier("a hash").ok()?.strip_prefix(SHA2)?;
    let is_plain = own.is_empty() || own.element()?.whole == NULL;
    let hash = match number {
        [1] => (Hash::Sha256, 32),
        [2] => (Hash::Sha384, 48),
        [3] => (Hash::Sha512, 64),
        _ => return None,
    };
    is_plain.then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        [&[tag, u8::try_from(content.len()).unwrap()], content.as_slice()].concat()
    }

    /// Reports whether a key is read, and whether it verifies anything here.
    fn read(algorithm: &[&[u8]], key: &[u8]) -> Option<bool> {
        let info = [element(SEQUENCE, algorithm), element(0x03, &[&[0], key])].concat();
        PublicKey::read(Reader::new(&info))
            .ok()
            .map(|own| own.is_usable())
    }

    /// Each answer is that of Go's `parsePublicKey`, which also looks whether a point is on its curve.
    #[test]
    fn public_keys_are_read_as_in_go() {
        const SECP256K1: &[u8] = &[0x2b, 0x81, 4, 0, 0x0a];
        let id = |id: &[u8]| element(OBJECT_IDENTIFIER, &[id]);
        let point = |bytes: usize| [&[4], vec![1; bytes].as_slice()].concat();
        let on = |curve: &[u8], key: &[u8]| read(&[&id(EC_PUBLIC_KEY), &id(curve)], key);
        assert_eq!(on(P256, &point(64)), Some(true));
        assert_eq!(on(P384, &point(96)), Some(true));
        assert_eq!(on(P224, &point(56)), Some(false));
        assert_eq!(on(P256, &point(96)), None);
        assert_eq!(on(P256, &[2; 33]), None, "compressed");
        assert_eq!(on(SECP256K1, &point(64)), None, "a curve that Go does not know");
        assert_eq!(read(&[&id(EC_PUBLIC_KEY), NULL], &point(64)), None);
        assert_eq!(read(&[&id(ED25519_ID)], &[1; 32]), Some(true));
        assert_eq!(read(&[&id(ED25519_ID)], &[1; 31]), None);
        let rsa = |numbers: &[&[u8]]| {
            let kind = [PKCS1, &[1]].concat();
            read(&[&id(&kind), NULL], &element(SEQUENCE, numbers))
        };
        assert_eq!(rsa(&[&[2, 1, 7], &[2, 1, 3]]), Some(true));
        assert_eq!(rsa(&[&[2, 1, 7]]), None, "no exponent");
        assert_eq!(rsa(&[&[2, 1, 0], &[2, 1, 3]]), None, "a modulus of zero");
        assert_eq!(rsa(&[&[2, 1, 7], &[2, 1, 0x83]]), None, "a negative exponent");
        assert_eq!(read(&[&id(&[0x2a, 3])], &[]), Some(false), "an unknown algorithm");
    }
}
