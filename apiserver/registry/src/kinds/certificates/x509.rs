//! Reading certificates, chains of them, and requests, as Go reads them.

use super::public_key::{self, SignatureError};
use machinery_x509::{CertificateRequest, PemBlock, pem_blocks};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

const CERTIFICATE: &str = "CERTIFICATE";
const MALFORMED: &str = "x509: malformed certificate";

/// Reports whether a certificate is an authority's; `None` if it cannot be parsed or bytes follow it.
pub(super) fn is_authority(der: &[u8]) -> Option<bool> {
    let constraints = certificate(der)?
        .basic_constraints()
        .ok()?
        .map(|own| own.value.ca);
    Some(constraints.unwrap_or(false))
}

/// Reports whether a PEM block has the label of a certificate.
pub(super) fn is_certificate(block: &PemBlock) -> bool {
    block.label == CERTIFICATE
}

/// One certificate and nothing behind it.
pub(super) fn certificate(der: &[u8]) -> Option<X509Certificate<'_>> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    rest.is_empty().then_some(certificate)
}

/// One request and nothing behind it, with a key that reads.
pub(super) fn request(der: &[u8]) -> Option<X509CertificationRequest<'_>> {
    let (rest, request) = X509CertificationRequest::from_der(der).ok()?;
    let key = &request.certification_request_info.subject_pki;
    (rest.is_empty() && public_key::kind(key).is_some()).then_some(request)
}

/// Verifies that a request was signed with the key in it.
pub(super) fn check_signature(request: &X509CertificationRequest<'_>) -> Result<(), SignatureError> {
    let info = &request.certification_request_info;
    public_key::verify(
        &info.subject_pki,
        &request.signature_algorithm,
        info.raw,
        &request.signature_value.data,
    )
}

/// The organizations of the subject in the text of a request; `None` for one whose text does not read.
/// A text that is no request has none at all. The signers' reader counts too: what is checked is what is signed.
pub fn organizations(text: &[u8]) -> Vec<Option<String>> {
    let all = pem_blocks(text);
    let Some(request) = all.first().and_then(|block| request(&block.content)) else {
        return Vec::new();
    };
    let subject = &request.certification_request_info.subject;
    let read = |own: &AttributeTypeAndValue<'_>| own.as_str().ok().map(str::to_owned);
    let signed = CertificateRequest::unverified(text).map(|own| own.organizations);
    let signed = signed.unwrap_or_default().into_iter().map(Some);
    subject.iter_organization().map(read).chain(signed).collect()
}

/// The common name of the subject in the text of a request: the last one, as Go has it.
///
/// # Errors
/// Why the text is no request, in Go's words.
pub fn common_name(text: &[u8]) -> Result<String, String> {
    let all = pem_blocks(text);
    let Some(block) = all.first().filter(|block| block.label == "CERTIFICATE REQUEST") else {
        return Err("PEM block type must be CERTIFICATE REQUEST".to_owned());
    };
    if block.content.is_empty() {
        return Err("asn1: syntax error: sequence truncated".to_owned());
    }
    let request = request(&block.content).ok_or("asn1: syntax error: data truncated")?;
    let subject = &request.certification_request_info.subject;
    let name = subject
        .iter_common_name()
        .last()
        .map(AttributeTypeAndValue::as_str);
    let unreadable = || "unable to read the common name".to_owned();
    let name = name.unwrap_or(Ok("")).map_err(|_| unreadable())?;
    // The signers' reader must read the same.
    let signed = CertificateRequest::unverified(text).map_or_else(|_| name.to_owned(), |own| own.common_name);
    if signed == name {
        Ok(signed)
    } else {
        Err(unreadable())
    }
}

/// The problem of a request's text, in Go's words.
pub(super) fn request_problem(text: &[u8]) -> Option<String> {
    let all = pem_blocks(text);
    let Some(block) = all.first().filter(|block| block.label == "CERTIFICATE REQUEST") else {
        return Some("PEM block type must be CERTIFICATE REQUEST".to_owned());
    };
    match request(&block.content) {
        None => Some("asn1: syntax error: data truncated".to_owned()),
        Some(request) => check_signature(&request).err().map(|error| error.to_string()),
    }
}

/// The problem of the certificates that a signer writes; an empty text is valid.
pub(super) fn certificates_problem(text: &[u8]) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let all = pem_blocks(text);
    for block in &all {
        if !is_certificate(block) {
            let detail = format!("only CERTIFICATE PEM blocks are allowed, found {:?}", block.label);
            return Some(detail);
        }
        if block.has_headers {
            return Some("no PEM block headers are permitted".to_owned());
        }
        let mut left = block.content.as_slice();
        if left.is_empty() {
            return Some("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        while !left.is_empty() {
            let Ok((rest, _)) = X509Certificate::from_der(left) else {
                return Some(MALFORMED.to_owned());
            };
            left = rest;
        }
    }
    all.is_empty()
        .then(|| "must contain at least one CERTIFICATE PEM block".to_owned())
}
