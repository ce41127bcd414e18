//! Tables as upstream's server headers them (`src/shared/columns/headers.tsv`), with a cell below each head.

use apiserver_registry::kinds;
use jiff::Timestamp;
use machinery_schema::Tree;

const HEADERS: &str = include_str!("../src/shared/columns/headers.tsv");

/// The names of a resource's headers; none for a kind that upstream shows by name and creation time.
fn headers(resource: &str) -> Vec<&'static str> {
    let mut lines = HEADERS.lines().skip_while(|line| *line != resource);
    lines.next();
    let own = lines.map_while(|line| line.strip_prefix('\t'));
    own.filter_map(|line| line.split('\t').next()).collect()
}

#[test]
fn columns_every_kind_has_upstream_headers_and_cells() {
    for row in kinds::built_in_rows() {
        let resource = format!("{}/{}/{}", row.gvk.group, row.gvk.version, row.plural);
        let own: Vec<&str> = row
            .columns
            .headers
            .iter()
            .map(|head| head.name.as_str())
            .collect();
        let upstreams = headers(&resource);
        assert!(
            upstreams.is_empty() || own == upstreams,
            "{resource}: {own:?}, upstream {upstreams:?}"
        );
        let empty = Tree::new(&row.schema, row.ty);
        let cells = (row.columns.cells)(empty.root(), Timestamp::UNIX_EPOCH);
        assert_eq!(cells.len(), own.len(), "{resource}");
    }
}
