//! Certificate signing requests (PKCS #10), read as Go's `x509.ParseCertificateRequest` reads them.
//!
//! One reader serves the code that decides on a request and the code that signs it: what is checked is what is signed.

use crate::der::{Malformed, Reader, SEQUENCE, SET, constructed};
use crate::extensions::Extensions;
use crate::general_names::{ADDRESS, DNS, EMAIL, URI};
use crate::name::Name;
use crate::pem;
use crate::signature::{PublicKey, SignatureAlgorithm};
use crate::writer::{element, sequence};
use std::collections::BTreeMap;
use std::net::IpAddr;

const LABEL: &[u8] = b"CERTIFICATE REQUEST";
/// `extensionRequest` (1.2.840.113549.1.9.14).
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];
/// Attributes of a subject that Go's `pkix.Name` knows, all of them `id-at` (2.5.4) and a number, in the order in which it writes
/// them. Others are not signed.
const KNOWN_ATTRIBUTES: [u8; 9] = [6, 10, 11, 7, 8, 9, 17, COMMON_NAME, SERIAL_NUMBER];
/// The attribute of which Go takes the last of two: readers that take the first must not see another name than the approver.
const COMMON_NAME: u8 = 3;
const SERIAL_NUMBER: u8 = 5;

/// The text is no request that can be signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// In upstream's words.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NoRequest,
    /// Its DER does not read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Its key did not sign it, or is of a kind whose signatures are not verified here.
    #[error("x509: cannot verify the signature of the request")]
    Signature,
}

/// Names and key that a certificate is requested for, their proof of possession verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The last common name, which is the one that Go takes.
    pub common_name: String,
    pub organizations: Vec<String>,
    pub dns_names: Vec<String>,
    pub addresses: Vec<IpAddr>,
    pub emails: Vec<String>,
    pub uris: Vec<String>,
    /// Encoded, of the attributes that are signed.
    pub(crate) subject: Vec<u8>,
    /// `SubjectPublicKeyInfo`, as it came.
    pub(crate) key_info: Vec<u8>,
}

impl CertificateRequest {
    /// Reads the first block of a text of PEM, and verifies that the request is signed with its own key.
    ///
    /// # Errors
    /// It is no request, or not its key's.
    pub fn from_pem(text: &[u8]) -> Result<Self, RequestError> {
        let der = Self::first(text)?;
        let mut own = outer(&der)?;
        let info = own.expect(SEQUENCE, "the signed part")?;
        let algorithm = own.inner(SEQUENCE, "a signature algorithm")?;
        let signature = own.aligned_bits("a signature")?;
        let (request, key) = Self::read(Reader::new(info.content))?;
        match SignatureAlgorithm::read(algorithm)?.verify(&key, info.whole, &signature) {
            true => Ok(request),
            false => Err(RequestError::Signature),
        }
    }

    /// Reads what the first block of a text of PEM requests, whatever its signature: for checks of its names.
    ///
    /// # Errors
    /// It is no request, or one that is never signed.
    pub fn unverified(text: &[u8]) -> Result<Self, RequestError> {
        let der = Self::first(text)?;
        let info = outer(&der)?.expect(SEQUENCE, "the signed part")?;
        Ok(Self::read(Reader::new(info.content))?.0)
    }

    fn first(text: &[u8]) -> Result<Vec<u8>, RequestError> {
        let (label, der) = pem::first(text).ok_or(RequestError::NoRequest)?;
        (label == LABEL).then_some(der).ok_or(RequestError::NoRequest)
    }

    fn read<'a>(mut info: Reader<'a>) -> Result<(Self, PublicKey<'a>), Malformed> {
        info.integer("a version")?;
        let subject = info.expect(SEQUENCE, "a subject")?;
        let key_info = info.expect(SEQUENCE, "a public key")?;
        let key = PublicKey::read(Reader::new(key_info.content))?;
        let name = Name::read(Reader::new(subject.content))?;
        let attributes = info.optional(constructed(0), "attributes")?;
        let extensions = match attributes.map(requested_extensions).transpose()?.flatten() {
            Some(list) => Extensions::read(list)?,
            None => Extensions::default(),
        };
        let names = extensions.names;
        let texts = |all: Vec<&str>| all.into_iter().map(str::to_owned).collect();
        let request = Self {
            common_name: name.common_name().to_owned(),
            organizations: name.organizations().map(str::to_owned).collect(),
            dns_names: texts(names.dns),
            addresses: names.addresses.into_iter().filter_map(address).collect(),
            emails: texts(names.emails),
            uris: texts(names.uris),
            subject: known_attributes(Reader::new(subject.content))?,
            key_info: key_info.whole.to_vec(),
        };
        Ok((request, key))
    }

    /// Reports whether the requested subject is empty.
    pub(crate) fn has_no_subject(&self) -> bool {
        self.subject == sequence(&[])
    }

    /// The value of `subjectAltName` in Go's order; `None` without alternative names.
    pub(crate) fn alternative_names(&self) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut push = |tag: u8, content: &[u8]| names.extend(element(tag, &[content]));
        self.dns_names.iter().for_each(|name| push(DNS, name.as_bytes()));
        self.emails.iter().for_each(|name| push(EMAIL, name.as_bytes()));
        for address in &self.addresses {
            match address {
                IpAddr::V4(own) => push(ADDRESS, &own.octets()),
                IpAddr::V6(own) => push(ADDRESS, &own.octets()),
            }
        }
        self.uris.iter().for_each(|name| push(URI, name.as_bytes()));
        (!names.is_empty()).then(|| sequence(&[&names]))
    }
}

/// The content of the one sequence that a request is.
fn outer(der: &[u8]) -> Result<Reader<'_>, Malformed> {
    let mut outer = Reader::new(der);
    let own = outer.inner(SEQUENCE, "no sequence")?;
    outer.is_empty().then_some(own).ok_or(Malformed("trailing data"))
}

/// The list of extensions among the attributes of a request.
fn requested_extensions(mut attributes: Reader<'_>) -> Result<Option<Reader<'_>>, Malformed> {
    const WHAT: &str = "an attribute";
    let mut found = None;
    while !attributes.is_empty() {
        let mut attribute = attributes.inner(SEQUENCE, WHAT)?;
        let kind = attribute.identifier(WHAT)?;
        let mut values = attribute.inner(SET, WHAT)?;
        if kind != EXTENSION_REQUEST {
            continue;
        }
        let list = values.inner(SEQUENCE, WHAT)?;
        // Two lists might be read one by the approver and the other by the signer.
        if !values.is_empty() || found.replace(list).is_some() {
            return Err(Malformed("extensions that are requested twice"));
        }
    }
    Ok(found)
}

/// A name of those attributes alone that Go carries over into a certificate, as Go writes it: one set for each kind.
fn known_attributes(mut names: Reader<'_>) -> Result<Vec<u8>, Malformed> {
    const WHAT: &str = "a name";
    let mut by_kind: BTreeMap<u8, Vec<&[u8]>> = BTreeMap::new();
    while !names.is_empty() {
        let mut set = names.inner(SET, WHAT)?;
        while !set.is_empty() {
            let attribute = set.expect(SEQUENCE, WHAT)?;
            let kind = Reader::new(attribute.content).identifier(WHAT)?;
            if let [0x55, 4, number] = kind {
                let own = by_kind.entry(*number).or_default();
                if [COMMON_NAME, SERIAL_NUMBER].contains(number) {
                    own.clear();
                }
                own.push(attribute.whole);
            }
        }
    }
    let mut kept = Vec::new();
    for number in KNOWN_ATTRIBUTES {
        if let Some(mut own) = by_kind.remove(&number) {
            // A set is in order.
            own.sort_unstable();
            kept.extend(element(SET, &[&own.concat()]));
        }
    }
    Ok(sequence(&[&kept]))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}
