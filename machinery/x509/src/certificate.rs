//! One certificate, read as Go's `x509.ParseCertificate` reads it.

use crate::der::{Malformed, Reader, SEQUENCE, constructed, context};
use crate::extensions::Extensions;
use crate::name::Name;
use crate::signature::{self, PublicKey, SignatureAlgorithm};
use jiff::Timestamp;
use std::borrow::Cow;

/// Fields of a certificate, borrowed from its bytes but for the few texts that are not UTF-8.
#[derive(Debug)]
pub(crate) struct Certificate<'a> {
    pub(crate) der: &'a [u8],
    /// From 1 to 3.
    pub(crate) version: u8,
    pub(crate) serial: &'a [u8],
    pub(crate) signature_algorithm: SignatureAlgorithm,
    /// Encoded, as names are compared.
    pub(crate) issuer: &'a [u8],
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
    /// Encoded.
    pub(crate) subject: &'a [u8],
    pub(crate) name: Name<'a>,
    /// `SubjectPublicKeyInfo`.
    pub(crate) key_info: &'a [u8],
    pub(crate) key: PublicKey<'a>,
    pub(crate) extensions: Extensions<'a>,
    /// The part that is signed.
    signed: &'a [u8],
    signature: Cow<'a, [u8]>,
}

impl<'a> Certificate<'a> {
    pub(crate) fn read(der: &'a [u8]) -> Result<Self, Malformed> {
        let mut input = Reader::new(der);
        let mut outer = input.inner(SEQUENCE, "no sequence")?;
        if !input.is_empty() {
            return Err(Malformed("trailing data"));
        }
        let body = outer.expect(SEQUENCE, "the signed part")?;
        let outer_algorithm = outer.expect(SEQUENCE, "a signature algorithm")?;
        let signature = outer.aligned_bits("a signature")?;
        let mut own = Reader::new(body.content);
        let version = version(&mut own)?;
        let serial = own.integer("a serial number")?;
        if serial[0] >= 0x80 {
            return Err(Malformed("a negative serial number"));
        }
        let algorithm = own.expect(SEQUENCE, "a signature algorithm")?;
        if algorithm.content != outer_algorithm.content {
            return Err(Malformed("two different signature algorithms"));
        }
        let issuer = own.expect(SEQUENCE, "an issuer")?;
        Name::read(Reader::new(issuer.content))?;
        let mut validity = own.inner(SEQUENCE, "a validity")?;
        let (not_before, not_after) = (validity.time()?, validity.time()?);
        let subject = own.expect(SEQUENCE, "a subject")?;
        let name = Name::read(Reader::new(subject.content))?;
        let key_info = own.expect(SEQUENCE, "a public key")?;
        let key = PublicKey::read(Reader::new(key_info.content))?;
        Ok(Self {
            der,
            version,
            serial,
            signature_algorithm: SignatureAlgorithm::read(Reader::new(algorithm.content))?,
            issuer: issuer.whole,
            not_before,
            not_after,
            subject: subject.whole,
            name,
            key_info: key_info.whole,
            key,
            extensions: extensions(version, own)?,
            signed: body.whole,
            signature,
        })
    }

    /// Reports whether it counts at this moment, its first and its last one included.
    pub(crate) fn is_valid_at(&self, now: Timestamp) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// The algorithm and the key of its subject.
    pub(crate) fn key_parts(&self) -> Result<(&'a [u8], &'a [u8]), Malformed> {
        let mut info = Reader::new(self.key_info);
        signature::parts(info.inner(SEQUENCE, "a public key")?)
    }

    /// Reports whether the key of `parent` made the signature.
    pub(crate) fn is_signed_with(&self, parent: &Certificate<'_>) -> bool {
        self.signature_algorithm
            .verify(&parent.key, self.signed, &self.signature)
    }
}

fn version(own: &mut Reader<'_>) -> Result<u8, Malformed> {
    const WHAT: &str = "a version";
    let Some(mut explicit) = own.optional(constructed(0), WHAT)? else {
        return Ok(1);
    };
    let number = explicit.small_integer(WHAT)?;
    let number = u8::try_from(number).ok().filter(|number| *number < 3);
    number.map(|number| number + 1).ok_or(Malformed(WHAT))
}

/// Reads the extensions behind the key; versions before 3 have none.
fn extensions(version: u8, mut own: Reader<'_>) -> Result<Extensions<'_>, Malformed> {
    if version < 3 {
        return Ok(Extensions::default());
    }
    for unique_id in [context(1), context(2)] {
        own.optional(unique_id, "a unique identifier")?;
    }
    match own.optional(constructed(3), "extensions")? {
        Some(mut own) => Extensions::read(own.inner(SEQUENCE, "extensions")?),
        None => Ok(Extensions::default()),
    }
}
