"""ONNX: torch modules exported to it, and what ONNX Runtime computes of them."""
