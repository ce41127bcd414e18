//! Terminal sizes as clients send them: `{"Width":80,"Height":24}`, one JSON value after the other.

use tokio::sync::mpsc;

use super::channels::Input;

/// A value longer than this ends the stream of sizes.
const VALUE_BYTES_MAX: usize = 1 << 10;

/// Sizes of one session, read as their bytes come. Each byte is looked at once, and parsed once.
///
/// Upstream's decoder stops at the first value that is none of its kind, and so does this.
#[derive(Debug, Default)]
pub(super) struct TerminalSizes {
    /// The value that has not ended yet.
    value: Vec<u8>,
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
}

/// No more sizes come: the bytes were no sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NoSize;

impl TerminalSizes {
    /// Sends the sizes that these bytes end; false if none can follow, or the receiver has gone.
    pub(super) async fn forward(&mut self, data: &[u8], to: &mpsc::Sender<Input>) -> bool {
        for byte in data {
            let goes_on = match self.push(*byte) {
                Ok(None) => true,
                Ok(Some(size)) => to.send(size).await.is_ok(),
                Err(NoSize) => false,
            };
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// Reads one byte; returns the size that it ends.
    ///
    /// # Errors
    /// When it cannot belong to a size, or the value is too long.
    fn push(&mut self, byte: u8) -> Result<Option<Input>, NoSize> {
        if self.depth == 0 && byte.is_ascii_whitespace() {
            return Ok(None);
        }
        if self.depth == 0 && byte != b'{' || self.value.len() == VALUE_BYTES_MAX {
            return Err(NoSize);
        }
        self.value.push(byte);
        if self.is_in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.is_in_string = false,
                _ => {}
            }
            return Ok(None);
        }
        match byte {
            b'"' => self.is_in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        if self.depth > 0 {
            return Ok(None);
        }
        let value = std::mem::take(&mut self.value);
        parsed(&value).map(Some)
    }
}

/// Reads sizes as Go does: names in any case, and a side that is missing is 0.
fn parsed(text: &[u8]) -> Result<Input, NoSize> {
    let value: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(text).map_err(|_| NoSize)?;
    let side = |name: &str| {
        let mut found = value.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        match found.next_back() {
            None | Some((_, serde_json::Value::Null)) => Ok(0),
            Some((_, number)) => number
                .as_u64()
                .and_then(|number| u16::try_from(number).ok())
                .ok_or(NoSize),
        }
    };
    Ok(Input::Resize {
        width: side("Width")?,
        height: side("Height")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes read of a text, and whether the stream goes on.
    fn read(text: &str) -> (Vec<(u16, u16)>, bool) {
        let (mut sizes, mut found) = (TerminalSizes::default(), Vec::new());
        for byte in text.bytes() {
            match sizes.push(byte) {
                Ok(Some(Input::Resize { width, height })) => found.push((width, height)),
                Ok(_) => {}
                Err(NoSize) => return (found, false),
            }
            assert!(sizes.value.len() <= VALUE_BYTES_MAX);
        }
        (found, true)
    }

    #[test]
    fn terminal_sizes_are_json_values_one_after_the_other() {
        let text = "{\"Width\":80,\"Height\":24}\n {\"height\":25}{\"Width\":1,\"x\":{\"a\":[\"}\\\"\"]},\"Height\":2}{\"W";
        assert_eq!(read(text), (vec![(80, 24), (0, 25), (1, 2)], true));
    }

    #[test]
    fn terminal_sizes_end_with_what_is_none() {
        for text in [
            "1",
            "[]",
            "}",
            "{\"Width\":70000}",
            "{\"Width\":-1}",
            "{\"Width\":\"a\"}",
            "{]",
            "{\"Width\" 1}",
        ] {
            assert_eq!(
                read(&format!("{{\"Width\":3}}{text}")),
                (vec![(3, 0)], false),
                "{text}"
            );
        }
        for endless in [" {\"Width\":1,", "{\"", "{[[[", "{\"x\":\"}}}}}"] {
            assert_eq!(
                read(&format!("{endless}{}", "1".repeat(VALUE_BYTES_MAX))),
                (vec![], false)
            );
        }
        assert_eq!(read(&" ".repeat(VALUE_BYTES_MAX * 2)), (vec![], true));
    }
}
