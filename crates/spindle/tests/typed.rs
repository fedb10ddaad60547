//! Values as messages: in frames and as objects, from both publishers, in a group.
use serde::{Deserialize, Serialize};
use spindle::typed::{DecodeCause, Schema, decode, encode};
use spindle::{Batch, Config, ReceiveError, SubgroupId};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
struct Quote<'a> {
    symbol: &'a str,
    prices: Vec<u64>,
}

impl Schema for Quote<'_> {
    const SCHEMA: u32 = 1;
}

#[derive(Serialize, Deserialize, Debug)]
struct Other;

impl Schema for Other {
    const SCHEMA: u32 = 2;
}

/// Polls a future until it is ready, as a busy executor would.
fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

#[test]
fn values_of_any_length_arrive_as_they_were() {
    let mut config = Config::new("typed", 1);
    config.subgroups[0].message_bytes_max = 64;
    let mut node = config.local().unwrap().remove(0);
    let (mut publisher, mut receiver) = (node.publisher("all").unwrap(), node.receiver("all").unwrap());
    let group = node.start(|_: SubgroupId, _: &mut Batch<'_>| {}).unwrap();
    assert_eq!(publisher.message_bytes_max(), 64);

    let small = Quote { symbol: "AB", prices: vec![1, 2] };
    let large = Quote { symbol: "LARGE", prices: (0..1_000).collect() };
    publisher.send_typed(&small, LONG).unwrap();
    publisher.send_typed(&large, LONG).unwrap();
    run(publisher.send_typed_async(&small)).unwrap();
    let mut shared = publisher.share();
    assert_eq!(shared.message_bytes_max(), 64);
    shared.send_typed(&large, LONG).unwrap();
    run(shared.send_typed_async(&large)).unwrap();
    let receipt = shared.send_tracked(&encode(&small).unwrap(), LONG).unwrap();
    shared.send_typed(&Other, LONG).unwrap();
    drop(shared);

    let (mut found, mut refused) = (0, Vec::new());
    loop {
        match receiver.receive(LONG) {
            Ok(mut messages) => {
                for message in messages.iter() {
                    match decode::<Quote<'_>>(&message) {
                        Ok(quote) => {
                            let expected = [&small, &large, &small, &large, &large, &small][found];
                            assert_eq!(&quote, expected);
                            found += 1;
                        }
                        Err(error) => refused.push(error),
                    }
                }
            }
            Err(ReceiveError::Finished) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((found, refused.len()), (6, 1));
    assert!(matches!(receipt.wait(LONG), Some(spindle::Outcome::Delivered { .. })));
    assert_eq!(refused[0].cause, DecodeCause::Schema { expected: 1, got: 2 });
    let text = refused[0].to_string();
    assert!(text.contains("member 1") && text.contains("Quote") && text.contains("its schema is 2"), "{text}");
    group.finish(LONG).unwrap();
}
