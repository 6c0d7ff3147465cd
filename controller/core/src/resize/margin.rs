//! How much memory a lower limit must leave free.

use pitstop_api::quantity::Resource;
use pitstop_api::resize::PodResizeSpec;

/// In bytes. A text that is no quantity was refused.
pub(super) fn of(spec: &PodResizeSpec) -> i64 {
    let margin = spec.memory_shrink.as_ref().and_then(|shrink| shrink.margin.as_deref());
    margin.and_then(|text| Resource::Memory.parse(text)).unwrap_or_default()
}
