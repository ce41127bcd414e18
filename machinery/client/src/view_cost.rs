//! Memory of views beside what the store charges for their objects, and nulls in those objects, for tests of views (decision 0079).

use crate::object::parse_header;
use crate::projection::Projection;
use serde_json::Value;

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

/// Asserts that the view of each of these objects takes at most this many times what the store charges, and that a null in it is as
/// good as nothing. `fill` makes an object with a long list of items, `resident` says what the thread holds.
///
/// # Panics
/// A view takes more, or is none for a null, or an object is none.
#[track_caller]
pub fn assert_views_take<P: Projection>(
    most: f64,
    objects: &[Filled<'_>],
    fill: impl Fn(&str, &str) -> String,
    resident: impl Fn() -> usize + Copy,
) {
    let mut above = Vec::new();
    for (object, item) in objects {
        assert_nulls_are_read::<P>(&object.replacen('@', &item.replace('#', "1"), 1));
        let cost = view_cost::<P>(&fill(object, item), resident).expect("an object");
        #[allow(clippy::cast_precision_loss, reason = "sizes of test objects")]
        let times = cost.taken as f64 / cost.charged as f64;
        if times > most {
            above.push(format!("{times:.1} times: {object} of {item}"));
        }
    }
    assert!(above.is_empty(), "{}: {above:#?}", std::any::type_name::<P>());
}

/// Asserts that an object is read with a null in the place of each list and map of it, where it is read without.
#[track_caller]
fn assert_nulls_are_read<P: Projection>(json: &str) {
    let (header, _) = parse_header(json.as_bytes()).expect("an object");
    let object: Value = serde_json::from_str(json).expect("an object");
    let mut paths = Vec::new();
    collections("", &object, &mut paths);
    let is_read = |object: &Value| P::project(&header, object.to_string().as_bytes()).map(drop);
    for path in paths {
        let (mut null, mut absent) = (object.clone(), object.clone());
        if let Some(place) = null.pointer_mut(&path) {
            *place = Value::Null;
        }
        let (parent, name) = path.rsplit_once('/').unwrap_or_default();
        let name = name.replace("~1", "/").replace("~0", "~");
        if let Some(members) = absent.pointer_mut(parent).and_then(Value::as_object_mut) {
            members.remove(&name);
        }
        let (null, absent) = (is_read(&null), is_read(&absent));
        assert!(
            null.is_ok() || absent.is_err(),
            "{}: null at {path} of {json}: {null:?}",
            std::any::type_name::<P>()
        );
    }
}

/// JSON pointers of the members of a value that are lists and maps.
fn collections(at: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                collections(&format!("{at}/{number}"), item, found);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                let path = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                if member.is_array() || member.is_object() {
                    found.push(path.clone());
                }
                collections(&path, member, found);
            }
        }
        _ => {}
    }
}

/// A running pod of a Deployment as controllers and kubelet leave it, for tests of the memory that many of them take.
pub const USUAL_POD: &str = include_str!("../testdata/usual_pod.json");
