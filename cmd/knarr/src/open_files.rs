//! How many files this process may have open, and so how many connections it takes: a server without a file to spare cannot
//! write its log, and ends.

/// Files for what is no client's connection: the log's segments, sockets towards nodes and pods, pipes, certificates.
const RESERVE: u64 = 256;
/// What is assumed where the kernel does not say.
const USUAL_LIMIT: u64 = 1_024;

/// Raises the limit as far as the machine's owner allows, and answers how many connections to serve: `most`, or fewer.
pub(crate) fn connections(most: usize) -> usize {
    let open_files = node_sys::limits::raise_open_files().unwrap_or(USUAL_LIMIT);
    let connections = room(open_files).min(most);
    tracing::info!(
        open_files,
        connections,
        "as many files may be open, as many connections are served"
    );
    connections
}

/// What the limit leaves for connections; of a small one half.
fn room(open_files: u64) -> usize {
    let room = open_files - RESERVE.min(open_files / 2);
    usize::try_from(room).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_files_for_the_rest() {
        for (limit, expected) in [
            (0, 1),
            (64, 32),
            (256, 128),
            (1_024, 768),
            (1 << 20, (1 << 20) - 256),
        ] {
            assert_eq!(room(limit), expected, "{limit}");
        }
    }
}
