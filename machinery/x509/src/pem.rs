//! Certificates of PEM text, as upstream's `ParseCertsPEM` takes them from Go's `pem.Decode`.
//!
//! Everything but whole blocks is passed over: text around blocks, a block without its end, one whose lines are no base64. So are
//! blocks of other kinds and with headers.

use crate::certificate::Certificate;
use base64::Engine as _;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"\n-----END ";
const DASHES: &[u8] = b"-----";
const KIND: &[u8] = b"CERTIFICATE";
/// Go does not mind bits behind the last byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// A whole block.
struct Block<'a> {
    kind: &'a [u8],
    has_headers: bool,
    content: Vec<u8>,
}

/// The contents of all blocks of certificates, whatever they are.
pub(crate) fn certificates(mut text: &[u8]) -> Vec<CertificateDer<'static>> {
    let mut found = Vec::new();
    while let Some((block, rest)) = next(text) {
        if block.kind == KIND && !block.has_headers {
            found.push(CertificateDer::from(block.content));
        }
        text = rest;
    }
    found
}

/// A whole block of a text of PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PemBlock {
    /// As it stands behind `-----BEGIN `.
    pub label: String,
    pub has_headers: bool,
    pub content: Vec<u8>,
}

/// All whole blocks of a text, as Go's `pem.Decode` finds them one after the other.
pub fn pem_blocks(mut text: &[u8]) -> Vec<PemBlock> {
    let mut found = Vec::new();
    while let Some((block, rest)) = next(text) {
        found.push(PemBlock {
            label: String::from_utf8_lossy(block.kind).into_owned(),
            has_headers: block.has_headers,
            content: block.content,
        });
        text = rest;
    }
    found
}

/// A block of PEM without headers, in lines of 64 characters as Go's `pem.Encode` writes it.
pub fn pem_text(label: &str, content: &[u8]) -> String {
    const LINE_BYTES: usize = 48;
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in content.chunks(LINE_BYTES) {
        BASE64.encode_string(line, &mut text);
        text.push('\n');
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
    text
}

/// The kind and the content of the first block, which is all that Go's `pem.Decode` sees.
pub(crate) fn first(text: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    next(text).map(|(block, _)| (block.kind, block.content))
}

/// The first and the last moment at which the certificate of a text's first block counts; `None` where there is none that reads.
pub fn first_certificate_validity(text: &[u8]) -> Option<(Timestamp, Timestamp)> {
    let (_, der) = first(text)?;
    Certificate::read(&der)
        .ok()
        .map(|own| (own.not_before, own.not_after))
}

/// SHA-256 of a certificate's public key (its `SubjectPublicKeyInfo`) in hexadecimal, as kubeadm pins authorities; `None` where the
/// certificate does not read.
pub fn public_key_pin(certificate: &[u8]) -> Option<String> {
    let own = Certificate::read(certificate).ok()?;
    let digest = ring::digest::digest(&ring::digest::SHA256, own.key_info);
    Some(digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The first whole block, and what stands behind it.
fn next(mut text: &[u8]) -> Option<(Block<'_>, &[u8])> {
    while let Some(at) = find(text, END) {
        let (before, after) = (&text[..at], &text[at + END.len()..]);
        let Some((kind, rest)) = ends_line(after) else {
            text = after;
            continue;
        };
        // The last beginning before the end: others have lost theirs.
        let block = rfind(before, BEGIN).filter(|at| *at == 0 || before[at - 1] == b'\n');
        let block = block.and_then(|at| content(&before[at + BEGIN.len()..], kind));
        match block {
            Some(block) => return Some((block, rest)),
            None => text = after,
        }
    }
    None
}

/// The kind that the end of a block names, and what stands behind its line.
fn ends_line(after: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = find(after, b"\n").unwrap_or(after.len());
    let kind = after[..end].trim_ascii_end().strip_suffix(DASHES)?;
    Some((kind, &after[(end + 1).min(after.len())..]))
}

/// A block that begins and ends with this kind; `None` where it is broken.
fn content<'a>(block: &[u8], kind: &'a [u8]) -> Option<Block<'a>> {
    let mut lines = block.split(|byte| *byte == b'\n');
    let own = lines.next()?.trim_ascii_end().strip_suffix(DASHES)?;
    if own != kind {
        return None;
    }
    let mut lines = lines.peekable();
    let has_headers = lines.peek().is_some_and(|line| line.contains(&b':'));
    let lines = lines.skip_while(|line| line.contains(&b':'));
    let text: Vec<u8> = lines
        .flatten()
        .copied()
        .filter(|byte| !b" \t\r".contains(byte))
        .collect();
    Some(Block {
        kind,
        has_headers,
        content: BASE64.decode(text).ok()?,
    })
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|own| own == wanted)
}

fn rfind(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).rposition(|own| own == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";

    #[track_caller]
    fn check(case: &str, text: impl AsRef<[u8]>, expected: &[&[u8]]) {
        let found = certificates(text.as_ref());
        let found: Vec<&[u8]> = found.iter().map(AsRef::as_ref).collect();
        assert_eq!(found, expected, "{case}");
    }

    #[test]
    fn pem_text_has_lines_of_64_characters_and_reads_again() {
        assert_eq!(pem_text("CERTIFICATE", &[1, 2, 3]), WHOLE);
        for length in [0, 47, 48, 49, 96] {
            let content = vec![7; length];
            let text = pem_text("PRIVATE KEY", &content);
            assert!(text.lines().all(|line| line.len() <= 64), "{text}");
            assert_eq!(text.lines().count(), 2 + length.div_ceil(48));
            let read = pem_blocks(text.as_bytes());
            assert_eq!(
                (read[0].label.as_str(), &read[0].content),
                ("PRIVATE KEY", &content)
            );
        }
    }

    /// Each answer is that of Go's `pem.Decode` in upstream's `ParseCertsPEM`.
    #[test]
    fn pem_blocks_that_go_passes_over_end_no_bundle() {
        let one: &[&[u8]] = &[&[1, 2, 3]];
        let two: &[&[u8]] = &[&[1, 2, 3], &[1, 2, 3]];
        check("nothing", "", &[]);
        check("one", WHOLE, one);
        check("two", WHOLE.repeat(2), two);
        check("without a last line break", WHOLE.trim_end(), one);
        check("lines of Windows", WHOLE.replace('\n', "\r\n"), one);
        check("blanks", WHOLE.replace("AQID", " AQ\tID "), one);
        check(
            "bits behind the last byte",
            WHOLE.replace("AQID", "AR=="),
            &[&[1]],
        );
        check("lines", WHOLE.replace("AQID", "AQ\nID\n"), one);
        check("text around", format!("Root of x\n{WHOLE}and y\n{WHOLE}end"), two);
        let bytes = [b"caf\xe9\n".as_slice(), WHOLE.as_bytes(), b"\xff"].concat();
        check("bytes that are no UTF-8", bytes, one);
        let headers = WHOLE.replace("AQID", "Proc-Type: 4\nX: y\n\nAQID");
        check("headers", format!("{headers}{WHOLE}"), one);
        let other = WHOLE.replace("CERTIFICATE", "X509 CRL");
        check("another kind", format!("{other}{WHOLE}"), one);
        let cut = &WHOLE[..WHOLE.len() - 12];
        check("a last one cut short", format!("{WHOLE}{cut}"), one);
        check(
            "a first one without its end",
            format!("-----BEGIN CERTIFICATE-----\nAQID\n{WHOLE}"),
            one,
        );
        let wrong = WHOLE.replace("AQID", "AQ?D");
        check("no base64", format!("{WHOLE}{wrong}{WHOLE}"), two);
        let mixed = WHOLE.replace("END CERTIFICATE", "END KEY");
        check("two kinds", format!("{mixed}{WHOLE}"), one);
        check("not at a line's beginning", format!("x{WHOLE}"), &[]);
        check(
            "more behind the end",
            WHOLE.replace("END CERTIFICATE-----", "END CERTIFICATE-----x"),
            &[],
        );
    }
}
