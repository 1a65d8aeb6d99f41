"""Plain HTTP on the WebSocket port: health, metrics, and the page that shows the broker."""
