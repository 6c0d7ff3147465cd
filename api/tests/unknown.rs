//! What a newer version writes into an order.

use pitstop_api::nodework::Order;
use serde_json::json;

/// A controller that takes over from a newer one writes the orders back that stand.
#[test]
fn what_is_not_known_of_an_order_is_written_back() {
    let text = json!({
        "id": "u/app/1",
        "pod": {"namespace": "shop", "name": "web", "uid": "1"},
        "container": {"name": "app", "id": "01"},
        "action": {"later": {"x": 1}},
        "beside": true,
    });
    let order: Order = serde_json::from_value(text.clone()).unwrap();
    assert_eq!(serde_json::to_value(order).unwrap(), text);
}
