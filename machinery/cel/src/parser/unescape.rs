//! Values of quoted texts.

/// The bytes that a string or bytes literal means; `quoted` has its quotes and an `r` before them, but no `b`.
pub(super) fn unescape(quoted: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    let normal = quoted.replace("\r\n", "\n").replace('\r', "\n");
    let raw = normal.starts_with(['r', 'R']);
    let text = normal.trim_start_matches(['r', 'R']);
    let triple = text.len() >= 6 && (text.starts_with("'''") || text.starts_with("\"\"\""));
    let edge = if triple { 3 } else { 1 };
    let text = &text[edge..text.len() - edge];
    if raw || !text.contains('\\') {
        return Ok(text.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(own) = rest.next() {
        if own == '\\' {
            escaped(&mut rest, bytes, &mut out)?;
        } else {
            push(&mut out, own);
        }
    }
    Ok(out)
}

fn push(out: &mut Vec<u8>, own: char) {
    out.extend_from_slice(own.encode_utf8(&mut [0; 4]).as_bytes());
}

fn escaped(rest: &mut std::str::Chars<'_>, bytes: bool, out: &mut Vec<u8>) -> Result<(), &'static str> {
    const PLAIN: &str = "unable to unescape string";
    let own = rest
        .next()
        .ok_or("unable to unescape string, found '\\' as last character")?;
    let plain = match own {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => 10,
        'r' => 13,
        't' => 9,
        'v' => 11,
        '\\' | '\'' | '"' | '`' | '?' => own as u32,
        'x' | 'X' => return code(rest, 2, 16, PLAIN, bytes, out, 0),
        'u' if !bytes => return code(rest, 4, 16, PLAIN, false, out, 0),
        'U' if !bytes => return code(rest, 8, 16, PLAIN, false, out, 0),
        '0'..='3' => {
            let first = own as u32 - '0' as u32;
            return code(
                rest,
                2,
                8,
                "unable to unescape octal sequence in string",
                bytes,
                out,
                first,
            );
        }
        _ => return Err(PLAIN),
    };
    out.push(u8::try_from(plain).unwrap_or_default());
    Ok(())
}

fn code(
    rest: &mut std::str::Chars<'_>,
    count: usize,
    radix: u32,
    problem: &'static str,
    bytes: bool,
    out: &mut Vec<u8>,
    first: u32,
) -> Result<(), &'static str> {
    let mut value = first;
    for _ in 0..count {
        let digit = rest.next().and_then(|own| own.to_digit(radix)).ok_or(problem)?;
        value = value.wrapping_mul(radix) | digit;
    }
    if bytes {
        out.push(u8::try_from(value).map_err(|_| problem)?);
        return Ok(());
    }
    push(out, char::from_u32(value).ok_or("invalid unicode code point")?);
    Ok(())
}
