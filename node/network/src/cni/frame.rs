//! Frames between the plugin's program and the agent. Pure, and nothing but the standard library: the program is compiled with this
//! very file (`plugin/main.rs`).
//!
//! A request is a header ([`GREETING`] and the length of what follows), the environment ([`VARIABLES`], each after its length)
//! and the program's standard input. An answer is the exit code, the length of the text, and the text to print.

/// First bytes of a request. An agent refuses a program of other frames.
pub(crate) const GREETING: [u8; 8] = *b"KNARCNI1";
/// Variables of the environment, in the order of a request.
pub(crate) const VARIABLES: [&str; 6] = [
    "CNI_COMMAND",
    "CNI_CONTAINERID",
    "CNI_NETNS",
    "CNI_IFNAME",
    "CNI_ARGS",
    "CNI_PATH",
];
/// Name of the agent's socket, in the folder of the program.
pub(crate) const SOCKET: &str = "agent.sock";
/// Bytes of the standard input.
pub(crate) const INPUT_BYTES_MAX: usize = 1 << 20;
/// Bytes of a variable.
pub(crate) const VARIABLE_BYTES_MAX: usize = 32 << 10;
/// Bytes of an answer's text.
pub(crate) const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Bytes of a request's header, and of an answer's.
pub(crate) const HEADER: usize = GREETING.len() + 4;
pub(crate) const ANSWER_HEADER: usize = 5;
/// Bytes after a request's header.
pub(crate) const BODY_BYTES_MAX: usize = INPUT_BYTES_MAX + VARIABLES.len() * (4 + VARIABLE_BYTES_MAX);

/// A request, header and all; `None` where a part is too long.
pub(crate) fn request(variables: &[Vec<u8>; VARIABLES.len()], input: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::with_capacity(input.len() + 1024);
    for variable in variables {
        if variable.len() > VARIABLE_BYTES_MAX {
            return None;
        }
        body.extend(length_of(variable)?);
        body.extend(variable);
    }
    if input.len() > INPUT_BYTES_MAX {
        return None;
    }
    body.extend(input);
    Some([&GREETING[..], &length_of(&body)?, &body].concat())
}

/// Bytes that follow a request's header; `None` for another header, and for more than a request has.
pub(crate) fn body_length(header: &[u8; HEADER]) -> Option<usize> {
    let (greeting, length) = header.split_first_chunk()?;
    let length = number(length)?;
    (*greeting == GREETING && length <= BODY_BYTES_MAX).then_some(length)
}

/// The variables and the standard input of a request; `None` where they are not whole.
pub(crate) fn body(mut bytes: &[u8]) -> Option<([&[u8]; VARIABLES.len()], &[u8])> {
    let mut variables = [&bytes[..0]; VARIABLES.len()];
    for variable in &mut variables {
        let (length, rest) = bytes.split_at_checked(4)?;
        let length = number(length).filter(|length| *length <= VARIABLE_BYTES_MAX)?;
        (*variable, bytes) = rest.split_at_checked(length)?;
    }
    (bytes.len() <= INPUT_BYTES_MAX).then_some((variables, bytes))
}

/// An answer; a text that is too long is cut, which no reader takes for JSON.
pub(crate) fn answer(code: u8, text: &[u8]) -> Vec<u8> {
    let text = &text[..text.len().min(ANSWER_BYTES_MAX)];
    let length = length_of(text).unwrap_or_default();
    [&[code][..], &length, text].concat()
}

/// The exit code, and the bytes that follow; `None` for more than an answer has.
pub(crate) fn answer_length(header: &[u8; ANSWER_HEADER]) -> Option<(u8, usize)> {
    let (code, length) = header.split_first()?;
    let length = number(length).filter(|length| *length <= ANSWER_BYTES_MAX)?;
    Some((*code, length))
}

fn length_of(bytes: &[u8]) -> Option<[u8; 4]> {
    Some(u32::try_from(bytes.len()).ok()?.to_le_bytes())
}

fn number(bytes: &[u8]) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
}
