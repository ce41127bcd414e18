//! Alternative names of a certificate, of the kinds that constraints are about.

use crate::der::{Malformed, Reader, context};
use crate::domain::is_domain;
use crate::uri;

pub(crate) const EMAIL: u8 = context(1);
pub(crate) const DNS: u8 = context(2);
pub(crate) const URI: u8 = context(6);
pub(crate) const ADDRESS: u8 = context(7);

/// Alternative names of the kinds that are compared.
#[derive(Debug, Default)]
pub(crate) struct GeneralNames<'a> {
    pub(crate) dns: Vec<&'a str>,
    pub(crate) emails: Vec<&'a str>,
    pub(crate) uris: Vec<&'a str>,
    pub(crate) addresses: Vec<&'a [u8]>,
}

impl<'a> GeneralNames<'a> {
    pub(crate) fn read(mut list: Reader<'a>) -> Result<Self, Malformed> {
        const WHAT: &str = "an alternative name";
        let mut names = Self::default();
        while !list.is_empty() {
            let own = list.element().ok_or(Malformed(WHAT))?;
            match own.tag {
                DNS => names.dns.push(ascii(own.content)?),
                EMAIL => names.emails.push(ascii(own.content)?),
                URI => names.uris.push(read_uri(ascii(own.content)?)?),
                ADDRESS if matches!(own.content.len(), 4 | 16) => names.addresses.push(own.content),
                ADDRESS => return Err(Malformed(WHAT)),
                _ => {}
            }
        }
        Ok(names)
    }

    /// Reports whether there is none of a kind that is compared.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many names are compared.
    pub(crate) fn len(&self) -> usize {
        self.dns.len() + self.emails.len() + self.uris.len() + self.addresses.len()
    }
}

/// A URI whose host is a domain, or that has none.
pub(crate) fn read_uri(text: &str) -> Result<&str, Malformed> {
    let host = uri::host(text).filter(|host| is_domain(host));
    host.map(|_| text)
        .ok_or(Malformed("an alternative name that is no URI"))
}

/// Reads a name of ASCII.
pub(crate) fn ascii(bytes: &[u8]) -> Result<&str, Malformed> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii());
    text.ok_or(Malformed("a name that is not ASCII"))
}
