//! JSON with line breaks, as `pretty` requests it.

/// JSON for eyes: two spaces, member order kept.
pub(crate) fn indented(json: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    let bytes = json.as_bytes();
    let line = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', depth * 2));
    };
    for (at, byte) in bytes.iter().enumerate() {
        if in_text {
            out.push(*byte);
            (in_text, escaped) = (escaped || *byte != b'"', !escaped && *byte == b'\\');
            continue;
        }
        let empty = bytes
            .get(at + 1)
            .is_some_and(|next| matches!((byte, next), (b'{', b'}') | (b'[', b']')));
        match byte {
            b'"' => {
                in_text = true;
                out.push(*byte);
            }
            b'{' | b'[' => {
                depth += 1;
                out.push(*byte);
                if !empty {
                    line(&mut out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if !matches!(bytes[at - 1], b'{' | b'[') {
                    line(&mut out, depth);
                }
                out.push(*byte);
            }
            b',' => {
                out.push(*byte);
                line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            byte if byte.is_ascii_whitespace() => {}
            _ => out.push(*byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::indented;

    #[test]
    fn json_for_eyes() {
        let text = String::from_utf8(indented(r#"{"a":{},"b":[1,"x\",{"],"c":"\\"}"#)).unwrap();
        assert_eq!(
            text,
            "{\n  \"a\": {},\n  \"b\": [\n    1,\n    \"x\\\",{\"\n  ],\n  \"c\": \"\\\\\"\n}"
        );
    }
}
