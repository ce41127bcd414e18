//! Certificates for requests: the part that an authority signs, and the whole (Go's `x509.CreateCertificate` with upstream's
//! `PermissiveSigningPolicy`).
//!
//! Subject and key are carried over as they came, alternative names of the kinds that Go knows; extensions that a request
//! requests otherwise are not.

use crate::certificate::Certificate;
use crate::der::{BOOLEAN, Malformed, OBJECT_IDENTIFIER, OCTET_STRING, constructed, context};
use crate::request::CertificateRequest;
use crate::usages::Usages;
use crate::writer::{bytes_as_bits, element, sequence, time, unsigned};
use jiff::Timestamp;

/// Algorithms that authorities sign with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssuingAlgorithm {
    EcdsaSha256,
    EcdsaSha384,
    Ed25519,
    RsaSha256,
}

impl IssuingAlgorithm {
    fn identifier(self) -> Vec<u8> {
        const NULL: &[u8] = &[5, 0];
        let (id, parameters): (&[u8], &[u8]) = match self {
            Self::EcdsaSha256 => (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2], &[]),
            Self::EcdsaSha384 => (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3], &[]),
            Self::Ed25519 => (&[0x2b, 0x65, 0x70], &[]),
            Self::RsaSha256 => (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11], NULL),
        };
        sequence(&[&element(OBJECT_IDENTIFIER, &[id]), parameters])
    }
}

/// A certificate to be signed.
#[derive(Debug)]
pub struct Issue<'a> {
    pub request: &'a CertificateRequest,
    pub usages: &'a Usages,
    /// Random.
    pub serial: [u8; 16],
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// The authority's certificate, encoded.
    pub authority: &'a [u8],
    pub algorithm: IssuingAlgorithm,
}

impl Issue<'_> {
    /// The part that the authority signs.
    ///
    /// # Errors
    /// The authority's certificate does not read.
    pub fn to_be_signed(&self) -> Result<Vec<u8>, Malformed> {
        let authority = Certificate::read(self.authority)?;
        let mut serial = self.serial;
        // Positive, and of one length.
        serial[0] = serial[0] & 0x7f | 0x40;
        let version = element(constructed(0), &[&unsigned(&[2])]);
        let extensions = self.extensions(authority.extensions.subject_key_id);
        Ok(sequence(&[
            &version,
            &unsigned(&serial),
            &self.algorithm.identifier(),
            authority.subject,
            &sequence(&[&time(self.not_before), &time(self.not_after)]),
            &self.request.subject,
            &self.request.key_info,
            &element(constructed(3), &[&sequence(&[&extensions])]),
        ]))
    }

    /// The certificate, encoded.
    pub fn signed(&self, to_be_signed: &[u8], signature: &[u8]) -> Vec<u8> {
        sequence(&[
            to_be_signed,
            &self.algorithm.identifier(),
            &bytes_as_bits(signature),
        ])
    }

    /// All extensions, in Go's order.
    fn extensions(&self, authority_key_id: &[u8]) -> Vec<u8> {
        let key_id = || sequence(&[&element(context(0), &[authority_key_id])]);
        let own = [
            (15, true, self.usages.key_usage()),
            (37, false, self.usages.extended_key_usage()),
            // An empty sequence says that it is no authority.
            (19, true, Some(sequence(&[]))),
            (35, false, (!authority_key_id.is_empty()).then(key_id)),
            (
                17,
                self.request.has_no_subject(),
                self.request.alternative_names(),
            ),
        ];
        let written = own
            .into_iter()
            .filter_map(|(number, is_critical, value)| Some(extension(number, is_critical, &value?)));
        written.flatten().collect()
    }
}

/// `id-ce` (2.5.29), a number, and a value.
fn extension(number: u8, is_critical: bool, value: &[u8]) -> Vec<u8> {
    let id = element(OBJECT_IDENTIFIER, &[&[0x55, 0x1d, number]]);
    let critical = match is_critical {
        true => element(BOOLEAN, &[&[0xff]]),
        false => Vec::new(),
    };
    sequence(&[&id, &critical, &element(OCTET_STRING, &[value])])
}
