//! Memory of views beside what the store charges for their objects, for tests of views (decision 0079).

use crate::object::parse_header;
use crate::projection::Projection;

/// Bytes that an informer keeps of an object, and bytes that the store charges for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewCost {
    /// Header and projection, and the object's bytes where they are kept.
    pub taken: usize,
    /// The least that the store counts.
    pub charged: usize,
}

/// The cost of the object as this projection; `resident` returns what the thread holds. For tests of views.
pub fn view_cost<P: Projection>(
    json: &str,
    resident: impl Fn() -> usize,
) -> Result<ViewCost, serde_json::Error> {
    let before = resident();
    let (header, _) = parse_header(json.as_bytes())?;
    let view = (P::project(&header, json.as_bytes())?, header);
    let bytes = if P::KEEP_BYTES { json.len() } else { 0 };
    Ok(ViewCost {
        taken: resident().saturating_sub(before) + size_of_val(&view) + bytes,
        charged: json.len() + view.1.footprint(),
    })
}

/// An object of a test, and what fills the list in it.
pub type Filled<'a> = (&'a str, &'a str);

/// Asserts that the view of each of these objects takes at most this many times what the store charges. `fill` makes an object
/// with a long list of items, `resident` says what the thread holds.
///
/// # Panics
/// A view takes more, or an object is none.
#[track_caller]
pub fn assert_views_take<P: Projection>(
    most: f64,
    objects: &[Filled<'_>],
    fill: impl Fn(&str, &str) -> String,
    resident: impl Fn() -> usize + Copy,
) {
    let mut above = Vec::new();
    for (object, item) in objects {
        let cost = view_cost::<P>(&fill(object, item), resident).expect("an object");
        #[allow(clippy::cast_precision_loss, reason = "sizes of test objects")]
        let times = cost.taken as f64 / cost.charged as f64;
        if times > most {
            above.push(format!("{times:.1} times: {object} of {item}"));
        }
    }
    assert!(above.is_empty(), "{}: {above:#?}", std::any::type_name::<P>());
}

/// A running pod of a Deployment as controllers and kubelet leave it, for tests of the memory that many of them take.
pub const USUAL_POD: &str = include_str!("../testdata/usual_pod.json");
