//! How many files this process may have open, and so how many connections it takes: a server without a file to spare cannot
//! write its log, and ends.

/// Files for what is no client's connection: the log's segments, sockets towards nodes and pods, pipes, certificates.
const RESERVE: u64 = 256;
/// Of all connections of a server, those that it opens itself on behalf of clients: one in so many.
const PROXIED_SHARE: usize = 5;
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

/// The same for a server that passes requests on: how many connections to serve, and over how many to pass requests on.
pub(crate) fn connections_and_proxied(most: usize, most_proxied: usize) -> (usize, usize) {
    shares(connections(most + most_proxied), most, most_proxied)
}

fn shares(all: usize, most: usize, most_proxied: usize) -> (usize, usize) {
    let proxied = (all / PROXIED_SHARE).clamp(1, most_proxied);
    ((all - proxied.min(all)).clamp(1, most), proxied)
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
    fn connections_leave_a_share_to_proxied_ones() {
        assert_eq!(shares(10_240, 8_192, 2_048), (8_192, 2_048));
        assert_eq!(shares(1_000, 8_192, 2_048), (800, 200));
        assert_eq!(shares(1, 8_192, 2_048), (1, 1));
    }

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
