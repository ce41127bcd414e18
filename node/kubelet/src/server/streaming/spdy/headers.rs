//! Header blocks: pairs of names and values, compressed with a dictionary both sides know.
//!
//! Received blocks may use all of zlib. Sent ones are stored blocks only: valid, and small enough.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};

/// Headers of one stream; names are lower case.
pub(crate) type Headers = Vec<(String, String)>;

/// Largest header block in bytes, and its largest number of pairs.
const BLOCK_BYTES_MAX: usize = 64 << 10;
const PAIRS_MAX: usize = 64;

/// Memory of headers: their bytes, and for each pair two strings.
pub(super) fn bytes_of(headers: &Headers) -> usize {
    let pairs = headers.iter().map(|(name, value)| name.len() + value.len());
    pairs.sum::<usize>() + headers.len() * size_of::<(String, String)>()
}

/// A header block that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a header block is unreadable")]
pub(crate) struct HeaderError;

/// Reads the blocks of one direction of one session, in order.
#[derive(Debug)]
pub(crate) struct HeaderReader {
    zlib: Decompress,
}

impl Default for HeaderReader {
    fn default() -> Self {
        Self {
            zlib: Decompress::new(true),
        }
    }
}

impl HeaderReader {
    /// Reads the next block.
    pub(crate) fn read(&mut self, block: &[u8]) -> Result<Headers, HeaderError> {
        let mut plain = Vec::with_capacity(1024);
        let mut rest = block;
        let mut buffer = [0_u8; 1024];
        loop {
            let (before_in, before_out) = (self.zlib.total_in(), self.zlib.total_out());
            let outcome = self.zlib.decompress(rest, &mut buffer, FlushDecompress::Sync);
            let taken = usize::try_from(self.zlib.total_in() - before_in).unwrap_or(0);
            let made = usize::try_from(self.zlib.total_out() - before_out).unwrap_or(0);
            rest = &rest[taken.min(rest.len())..];
            plain.extend_from_slice(&buffer[..made]);
            match outcome {
                Err(error) if error.needs_dictionary().is_some() => {
                    self.zlib.set_dictionary(&dictionary()).map_err(|_| HeaderError)?;
                }
                Err(_) => return Err(HeaderError),
                Ok(Status::StreamEnd) => break,
                Ok(_) if taken == 0 && made == 0 => break,
                Ok(_) => {}
            }
            if plain.len() > BLOCK_BYTES_MAX {
                return Err(HeaderError);
            }
        }
        parse(plain.into())
    }
}

fn parse(mut plain: Bytes) -> Result<Headers, HeaderError> {
    let number = |plain: &mut Bytes| {
        if plain.len() < 4 {
            Err(HeaderError)
        } else {
            usize::try_from(plain.get_u32()).map_err(|_| HeaderError)
        }
    };
    let text = |plain: &mut Bytes| {
        let length = number(plain)?;
        if plain.len() < length {
            return Err(HeaderError);
        }
        String::from_utf8(plain.split_to(length).to_vec()).map_err(|_| HeaderError)
    };
    let count = number(&mut plain)?;
    if count > PAIRS_MAX {
        return Err(HeaderError);
    }
    (0..count)
        .map(|_| Ok((text(&mut plain)?.to_ascii_lowercase(), text(&mut plain)?)))
        .collect()
}

/// Writes the blocks of one direction of one session, in order.
#[derive(Debug, Default)]
pub(crate) struct HeaderWriter {
    began: bool,
}

impl HeaderWriter {
    /// Writes the next block.
    pub(crate) fn write(&mut self, headers: &[(&str, &str)]) -> Bytes {
        let mut plain = BytesMut::new();
        let number = |value: usize| u32::try_from(value).unwrap_or(0);
        plain.put_u32(number(headers.len()));
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            plain.put_u32(number(text.len()));
            plain.put_slice(text.as_bytes());
        }
        let mut out = BytesMut::new();
        if !std::mem::replace(&mut self.began, true) {
            // A zlib stream begins: deflate with a 32 KiB window, no preset dictionary.
            out.put_slice(&[0x78, 0x01]);
        }
        for piece in plain.chunks(usize::from(u16::MAX)) {
            let length = u16::try_from(piece.len()).unwrap_or(0);
            out.put_u8(0);
            out.put_u16_le(length);
            out.put_u16_le(!length);
            out.put_slice(piece);
        }
        // An empty stored block: the reader sees that all of it is there.
        out.put_slice(&[0, 0, 0, 0xff, 0xff]);
        out.freeze()
    }
}

/// The dictionary of SPDY/3: common names, each with its length before it, then common values.
fn dictionary() -> Vec<u8> {
    const NAMES: &str = "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|accept-language|\
        accept-ranges|age|allow|authorization|cache-control|connection|content-base|content-encoding|\
        content-language|content-length|content-location|content-md5|content-range|content-type|date|etag|expect|\
        expires|from|host|if-match|if-modified-since|if-none-match|if-range|if-unmodified-since|last-modified|\
        location|max-forwards|pragma|proxy-authenticate|proxy-authorization|range|referer|retry-after|server|te|\
        trailer|transfer-encoding|upgrade|user-agent|vary|via|warning|www-authenticate|method|get|status|200 OK|\
        version|HTTP/1.1|url|public|set-cookie|keep-alive|origin";
    const VALUES: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
        203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized\
        403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable\
        Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT\
        chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,\
        text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";
    let mut out = Vec::with_capacity(1423);
    for name in NAMES.split('|') {
        out.extend_from_slice(&u32::try_from(name.len()).unwrap_or(0).to_be_bytes());
        out.extend_from_slice(name.as_bytes());
    }
    out.extend_from_slice(VALUES.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compress, Compression, FlushCompress};

    /// Size of zlib's window and state.
    const WINDOW_BYTES: usize = 64 << 10;

    #[test]
    fn spdy_dictionary_is_the_standard_one() {
        assert_eq!(dictionary().len(), 1423);
        let mut compress = Compress::new(Compression::default(), true);
        assert_eq!(compress.set_dictionary(&dictionary()).unwrap(), 0xe3c6_a7c2);
    }

    #[test]
    fn spdy_header_blocks_round_trip() {
        let (mut writer, mut reader) = (HeaderWriter::default(), HeaderReader::default());
        for headers in [
            vec![("streamtype", "stdin")],
            vec![],
            vec![("a", "1"), ("b", "2")],
        ] {
            let block = writer.write(&headers);
            let owned: Headers = headers
                .iter()
                .map(|(a, b)| ((*a).to_string(), (*b).to_string()))
                .collect();
            assert_eq!(reader.read(&block).unwrap(), owned);
        }
    }

    #[test]
    fn blocks_compressed_with_the_dictionary_are_read() {
        let mut compress = Compress::new(Compression::best(), true);
        compress.set_dictionary(&dictionary()).unwrap();
        let mut reader = HeaderReader::default();
        for port in ["8080", "8081"] {
            let plain = [
                &1_u32.to_be_bytes()[..],
                &4_u32.to_be_bytes(),
                b"Port",
                &4_u32.to_be_bytes(),
                port.as_bytes(),
            ];
            let mut block = Vec::with_capacity(256);
            compress
                .compress_vec(&plain.concat(), &mut block, FlushCompress::Sync)
                .unwrap();
            assert_eq!(
                reader.read(&block).unwrap(),
                [("port".to_string(), port.to_string())]
            );
        }
    }

    #[test]
    fn spdy_headers_fuzz_never_panics() {
        let plain = HeaderWriter::default().write(&[("streamtype", "stdin"), ("port", "80")]);
        let mut compress = Compress::new(Compression::best(), true);
        compress.set_dictionary(&dictionary()).unwrap();
        let mut packed = Vec::with_capacity(256);
        let pairs = [
            &2_u32.to_be_bytes()[..],
            &4_u32.to_be_bytes(),
            b"port",
            &2_u32.to_be_bytes(),
            b"80",
        ];
        compress
            .compress_vec(&pairs.concat(), &mut packed, FlushCompress::Sync)
            .unwrap();
        machinery_fuzz::fuzz([plain.to_vec(), packed], |input| {
            let (headers, cost) = machinery_fuzz::cost(|| HeaderReader::default().read(input));
            // Whatever a few bytes unpack to: the window, one block, and the pairs copied out of it.
            assert!(cost.peak <= WINDOW_BYTES + 8 * BLOCK_BYTES_MAX, "{cost:?}");
            assert!(cost.total <= 2 * (WINDOW_BYTES + 8 * BLOCK_BYTES_MAX), "{cost:?}");
            if let Ok(headers) = headers {
                let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
                assert!(headers.len() <= PAIRS_MAX && bytes <= BLOCK_BYTES_MAX + 1024);
            }
        });
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(HeaderReader::default().read(b"nonsense").is_err());
        assert!(parse(Bytes::from_static(&[0, 0, 0, 1, 0, 0, 0, 9, 1])).is_err());
        assert!(parse(Bytes::from_static(&[0xff, 0xff, 0xff, 0xff])).is_err());
    }
}
