//! Reading a question, and nothing else, from a message's bytes.

/// Record types that are answered.
pub mod kind {
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const OPT: u16 = 41;
    pub const IXFR: u16 = 251;
    pub const AXFR: u16 = 252;
    pub const ANY: u16 = 255;
}

/// The class of everything.
pub const CLASS_IN: u16 = 1;
/// Bytes of a header.
pub const HEADER: usize = 12;
/// Bytes of a name at most, as RFC 1035 has it.
const MAX_NAME: usize = 255;
/// Largest UDP answer in bytes for a client without EDNS.
const PLAIN_UDP: u16 = 512;
/// Most bytes that are sent over UDP, so that nothing is fragmented.
pub(crate) const MAX_UDP: u16 = 1232;

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub id: u16,
    /// The client wants recursion; echoed.
    pub recursion: bool,
    /// Lower case, without the last dot; empty for the root.
    pub name: String,
    pub kind: u16,
    pub class: u16,
    /// The question as it came, with the client's letter case.
    pub question: Vec<u8>,
    /// The client speaks EDNS.
    pub edns: bool,
    /// Largest UDP answer in bytes for this client.
    pub udp_size: u16,
    /// It wants DNSSEC's records.
    pub dnssec_ok: bool,
    /// It checks signatures itself.
    pub checking_disabled: bool,
}

/// Reason why a message is not answered as a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreadable {
    /// Not even an error can be sent: too short, or itself an answer.
    Ignore,
    /// `FORMERR` for the message with this id.
    Malformed(u16),
    /// `NOTIMP` for the message with this id: not a plain query.
    NotImplemented(u16),
}

/// Reads a message with exactly one question.
pub fn parse(message: &[u8]) -> Result<Query, Unreadable> {
    let header: &[u8; HEADER] = message.first_chunk().ok_or(Unreadable::Ignore)?;
    let id = u16::from_be_bytes([header[0], header[1]]);
    if header[2] & 0x80 != 0 {
        return Err(Unreadable::Ignore);
    }
    if header[2] & 0x78 != 0 {
        return Err(Unreadable::NotImplemented(id));
    }
    let counts = [4, 6, 8, 10].map(|at| u16::from_be_bytes([header[at], header[at + 1]]));
    if counts[0] != 1 {
        return Err(Unreadable::Malformed(id));
    }
    let malformed = || Unreadable::Malformed(id);
    let (name, after) = read_name(message, HEADER).ok_or_else(malformed)?;
    let kind = read_u16(message, after).ok_or_else(malformed)?;
    let class = read_u16(message, after + 2).ok_or_else(malformed)?;
    let end = after + 4;
    // OPT is looked for only right behind the question. Clients put nothing else into a query but signatures,
    // which are behind it.
    let opt = if counts[1] == 0 && counts[2] == 0 && counts[3] > 0 {
        edns(message, end)
    } else {
        None
    };
    Ok(Query {
        id,
        recursion: header[2] & 1 != 0,
        name,
        kind,
        class,
        question: message[HEADER..end].to_vec(),
        edns: opt.is_some(),
        // Below 512 counts as 512 (RFC 6891, 6.2.3); above 1232 fragments would be lost on common paths (DNS
        // flag day 2020).
        udp_size: opt.map_or(PLAIN_UDP, |opt| opt.udp_size.clamp(PLAIN_UDP, MAX_UDP)),
        dnssec_ok: opt.is_some_and(|opt| opt.dnssec_ok),
        checking_disabled: header[3] & 0x10 != 0,
    })
}

pub(crate) fn read_u16(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]))
}

/// Reads a question's name. Compression is malformed here: there is nothing before it to point at.
fn read_name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut name = String::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        if length > 63 || name.len() + length + 1 > MAX_NAME {
            return None;
        }
        let label = message.get(at..at + length)?;
        if !name.is_empty() {
            name.push('.');
        }
        for byte in label {
            // A dot inside a label would be mistaken for a border; no service has such a name.
            if !byte.is_ascii_graphic() || *byte == b'.' {
                return None;
            }
            name.push(char::from(byte.to_ascii_lowercase()));
        }
        at += length;
    }
}

/// A name in any part of a message, passed over: the position after it.
pub(crate) fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = usize::from(*message.get(at)?);
        match length {
            0 => return Some(at + 1),
            1..=63 => at += 1 + length,
            // A pointer ends the name.
            192.. => return Some(at + 2),
            _ => return None,
        }
    }
}

/// An OPT record right after the question.
#[derive(Debug, Clone, Copy)]
struct Opt {
    udp_size: u16,
    dnssec_ok: bool,
}

fn edns(message: &[u8], at: usize) -> Option<Opt> {
    let is_opt = *message.get(at)? == 0 && read_u16(message, at + 1)? == kind::OPT;
    let (udp_size, flags) = (read_u16(message, at + 3)?, read_u16(message, at + 7)?);
    is_opt.then_some(Opt {
        udp_size,
        dnssec_ok: flags & 0x8000 != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &[&str], kind: u16) -> Vec<u8> {
        let mut out = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name {
            out.push(u8::try_from(label.len()).unwrap());
            out.extend(label.bytes());
        }
        out.push(0);
        out.extend(kind.to_be_bytes());
        out.extend(CLASS_IN.to_be_bytes());
        out
    }

    #[test]
    fn dns_question_is_read_and_kept_unchanged() {
        let query = parse(&message(&["Web", "NS"], kind::A)).unwrap();
        assert_eq!(
            (query.id, &*query.name, query.kind, query.udp_size),
            (0x1234, "web.ns", kind::A, 512)
        );
        assert!(query.question.starts_with(b"\x03Web"));
    }

    #[test]
    fn dns_query_fuzz_never_panics() {
        let mut with_edns = message(&["web", "default", "svc"], kind::SRV);
        with_edns[11] = 1;
        with_edns.extend([0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0]);
        machinery_fuzz::fuzz([message(&["Web", "NS"], kind::A), with_edns], |input| {
            if let Ok(query) = machinery_fuzz::in_proportion(input, 16, || parse(input)) {
                assert!(query.name.len() <= MAX_NAME && query.question.len() <= input.len());
            }
        });
    }

    #[test]
    fn dns_query_random_bytes_never_panic() {
        assert_eq!(parse(&[]), Err(Unreadable::Ignore));
        assert_eq!(parse(&[0; 11]), Err(Unreadable::Ignore));
        assert_eq!(parse(&[0; 12]), Err(Unreadable::Malformed(0)));
        let whole = message(&["a", "b"], kind::A);
        for end in HEADER..whole.len() {
            assert_eq!(parse(&whole[..end]), Err(Unreadable::Malformed(0x1234)));
        }
        let mut answer = whole.clone();
        answer[2] |= 0x80;
        assert_eq!(parse(&answer), Err(Unreadable::Ignore));
        let mut update = whole;
        update[2] |= 0x28;
        assert_eq!(parse(&update), Err(Unreadable::NotImplemented(0x1234)));
    }
}
