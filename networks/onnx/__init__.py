"""Networks from ONNX files, which become the program that exported networks become."""

from networks.onnx.network import read_onnx

__all__ = ["read_onnx"]
